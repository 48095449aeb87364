"""The chat: a session on the conversation tree, and the terminal that shows it."""
