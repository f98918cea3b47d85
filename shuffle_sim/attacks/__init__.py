"""The library of attacks by name: dropouts, collusion, manipulated inputs and outputs, and the
studies that measure them.
"""
