"""What an operator does with a state directory beside runs: retain, forget, back up, restore."""
