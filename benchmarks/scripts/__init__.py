"""Scripts that fit models of other packages, each run by the interpreter of its environment."""
