/* What tests set of the fake cuDNN. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Until it is set again: its version, 91900 at first, and how much more workspace a plan wants than
 * its engine said, 0 at first. */
void fake_cudnn_set (guint version, guint64 more_bytes);

/* From now on engines want so much more than cuDNN 9.19's do, and say so when they are asked. */
void fake_cudnn_want (guint64 bytes);

G_END_DECLS
