"""The bridge to nbgrader: reports into its gradebook, notebooks for Formgrader, its Autograde with our grader."""
