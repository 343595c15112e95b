/* Fuzz target: safetensors files, from memory through the parser that files go
 * through.  Inputs of other kinds are passed over: they have targets of their
 * own. */
#include "tests/fuzz/weights_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 9 || data[8] != '{')
        return 0;
    return fuzz_weights(data, size);
}
