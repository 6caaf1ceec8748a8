/* What tests set in the fake cuDNN. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Sets, until the next call, the version, which is 91900 at first, and by how much a plan's
 * workspace exceeds what its engine said, which is 0 at first. */
void fake_cudnn_set (guint version, guint64 more_bytes);

/* From now on engines want so many bytes of workspace more than cuDNN 9.19's do, and say so when
 * they are asked. */
void fake_cudnn_want (guint64 bytes);

G_END_DECLS
