"""The shapes in which trainers take training data, one module a trainer; none of them is imported here or there."""
