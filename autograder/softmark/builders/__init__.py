"""A course turned into what other people need of it: starter files, notebooks, autograder zips."""
