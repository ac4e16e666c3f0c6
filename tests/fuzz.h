/* fuzz: declares the two functions that each fuzz target defines. A target is built in two ways:
 *
 * - As a test (the default), linked with tests/fuzz_driver.c: runs every seed input and every file
 *   of tests/data/fuzz/TARGET unchanged, then mutated inputs for CLEAVE_FUZZ_SECONDS (1) seconds:
 *   flipped bits, changed length fields, cuts, splices, inserted and removed bytes. It prints its
 *   seed; on a crash it prints the round, and CLEAVE_SEED=… with CLEAVE_FUZZ_ROUND=… repeats only
 *   that round. Inputs are in memory of exactly their size, so that ASan detects a read beyond the
 *   end. `target FILE…` runs files instead.
 * - With clang's libFuzzer, which looks for inputs that reach new code: `./dev fuzz TARGET SECONDS`
 *   (scripts/fuzz.py). `./dev fuzz --merge TARGET` adds the inputs that it found to
 *   tests/data/fuzz/TARGET.
 *
 * docs/contributing/add-a-fuzz-target.md says how to add one. The driver or libFuzzer calls both
 * functions on the main thread. A target checks that no input does harm, and compares with a plain
 * reference where there is one. Other tests check that results are right. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Gives one input to the code under test. Returns 0. A failed check ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes seed input `index` (from 0) to the buffer and returns its size; 0 = no more seeds. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity);

#endif
