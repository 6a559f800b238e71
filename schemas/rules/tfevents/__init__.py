"""TensorBoard event files, read without TensorBoard: as they grow, and whatever is in them. No file is opened here."""
