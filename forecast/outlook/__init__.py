"""Tables that look ahead: pure functions of a fit."""
