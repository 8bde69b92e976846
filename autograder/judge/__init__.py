"""The judge: asks a learner's answer through a handle, runs its check, gives a verdict. In notebook and grading."""
