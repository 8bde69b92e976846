"""How the course is made from solutions/, and the release that grading reads."""
