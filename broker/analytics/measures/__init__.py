"""Measures by theme: functions from tables to tables. Must not know where tables come from or go."""
