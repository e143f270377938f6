"""`nvil bench`: what an update costs beside its bare matrix products and beside other libraries, in one run.

Every side is one module here with a function `prepare(case, data)`, which gives a function that makes a number of
updates and returns the bound of every one. What is not installed is left out; in a clone,
`pip install '.[peers]'` installs all.
"""
