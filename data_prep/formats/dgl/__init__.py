"""Files of DGL, read without it: tensors, GraphBolt's graphs; and a script that runs where DGL is."""
