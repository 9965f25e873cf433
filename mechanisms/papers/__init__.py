"""Systems of published papers, reproduced: for comparison and audits only."""
