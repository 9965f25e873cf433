"""The two experiments of the gradual release paper, beside their theory."""
