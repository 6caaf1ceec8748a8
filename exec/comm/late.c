/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/comm/late.h"

#include <dlfcn.h>

void *
exec_late_find (ExecLate *self, const char *function)
{
  if (g_once_init_enter (&self->is_tried))
    {
      self->handle = dlopen (self->name, RTLD_NOW | RTLD_GLOBAL);
      if (!self->handle)
        self->why = g_strdup_printf ("%s: %s", dlerror (), self->remedy);
      g_once_init_leave (&self->is_tried, 1);
    }
  return self->handle ? dlsym (self->handle, function) : NULL;
}
