/* PyTorch zip archives: to come. */
#include "file/parts.h"

int pth_read(struct weights *w, int part, struct err *err)
{
    (void)w;
    (void)part;
    return err_set(err, ERR_UNSUPPORTED, "PyTorch files cannot be read yet");
}
