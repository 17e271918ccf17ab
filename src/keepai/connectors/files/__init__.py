"""A folder of files, which other programs may use at the same time. In reading order:

files_connector  what scripts call
file_changes     the steps of a change, and the verdict on it afterwards
journal          the plan and the receipt of each change, on disk
paths            finds files below the folder and nowhere else
"""
