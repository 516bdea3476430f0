"""What is signed, how devices enrol, and the terms of secure aggregation."""
