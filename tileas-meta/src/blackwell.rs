//! Rows of the Blackwell machine model (compute capability 10.x and its tcgen05 relatives).
