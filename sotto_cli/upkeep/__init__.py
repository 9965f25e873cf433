"""Commands for what an operator does with a state directory beside runs."""
