"""Three small apps that report how they are used: a command, a web service, a job on all cores.

They share a plan and a state file an installation; ``docs/guides/sdk.md`` says how to run them.
"""
