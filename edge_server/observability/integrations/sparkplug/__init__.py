"""The federation as an edge node of Sparkplug B: births, deaths and metrics for SCADA hosts."""
