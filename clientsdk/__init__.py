"""What runs inside an app: randomize, keep a ledger, send. Standard library only."""
