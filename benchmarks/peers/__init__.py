"""Other trainers beside ours: the same environment, model and number of turns."""
