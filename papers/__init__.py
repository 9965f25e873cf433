"""Systems of published papers, reproduced, one module or folder a paper; see README.md beside."""
