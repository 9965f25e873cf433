"""Survey designs for one sensitive yes-or-no question."""
