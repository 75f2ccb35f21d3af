"""Speed on one GPU: outputs compared, then timed beside torch, then held to ceilings of the same run.

`measure.py` times and compares anything; `run.py` makes contenders of a spec; `report.py` and
`plot.py` show what came out. What a call must cost is `tritongen.cost`.
"""
