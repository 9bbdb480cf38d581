# The environment of all tests. Several run side by side: threads of OpenMP that wait do so without spinning.
set(ENV{OMP_WAIT_POLICY} passive)
