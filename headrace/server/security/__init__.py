"""Access control: tokens, sessions, the sign-in page, and the guard that every request passes."""
