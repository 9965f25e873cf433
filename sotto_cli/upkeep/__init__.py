"""Commands for what an operator does with states and topics beside runs."""
