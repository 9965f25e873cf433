"""Here so that subfolders find the helpers of this one: pytest puts its folder on the path."""
