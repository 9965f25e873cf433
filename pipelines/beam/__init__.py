"""The Beam pipeline that runs until it is stopped, and the pool of workers that engines use."""
