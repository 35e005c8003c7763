"""One file per figure, table, theorem and study; `reproduce.registry` lists them, and the folder is the list.

Files whose names begin with an underscore hold what several artifacts share.
"""
