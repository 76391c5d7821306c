"""Running a stranger's code apart: zygote, worker, sandbox, and the wire to the grader."""
