/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels as PTX. A launch runs the host compiler's kernel up to its first hook, which is
 * where a function begins; the hook's address gives the function's name, and the name gives the PTX
 * that then runs instead. */
#include "config.h"

#include "tests/fake/device.hpp"
#include "tests/fake/ptx.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <link.h>
#include <unistd.h>

namespace fake
{

namespace
{

std::map<std::string, PtxKernel> kernels;
std::vector<std::pair<guintptr, std::string>> functions; /* of this program, by address */
std::map<const void *, const PtxKernel *> entries; /* address of the hook's caller -> its PTX */
std::vector<uint8_t> parameters;
bool is_new_block;

int
note_base (struct dl_phdr_info *info, size_t bytes, void *data)
{
  *(guintptr *)data = info->dlpi_addr;
  return 1; /* the first object is the program */
}

/* Reads the names that nm gives for this program's functions. */
void
read_functions ()
{
  char path[4096] = "", line[8192], name[8192], letter;
  unsigned long long at;
  guintptr base = 0;

  if (readlink ("/proc/self/exe", path, sizeof path - 1) < 0)
    g_error ("this program does not know its own file");
  const std::string command = "nm '" + std::string (path) + "'";
  FILE *nm = popen (command.c_str (), "r");
  dl_iterate_phdr (note_base, &base);
  while (nm != nullptr && fgets (line, sizeof line, nm) != nullptr)
    if (sscanf (line, "%llx %c %8191s", &at, &letter, name) == 3 && strchr ("tTwW", letter))
      functions.push_back ({ base + at, name });
  if (nm == nullptr || pclose (nm) != 0)
    g_error ("nm does not read %s", path);
  std::sort (functions.begin (), functions.end ());
}

const PtxKernel *
kernel_of (const void *place)
{
  const auto after = std::upper_bound (functions.begin (), functions.end (),
                                       std::make_pair ((guintptr)place, std::string ()));

  if (after == functions.begin ())
    return nullptr;
  const auto found = kernels.find (ptx_demangle ((after - 1)->second.c_str ()));
  return found != kernels.end () ? &found->second : nullptr;
}

/* Packs the launch's arguments as the kernel's parameters lie. FALSE: they do not match. */
bool
pack (const PtxKernel &kernel, const FakeCudaLaunch &launch)
{
  parameters.assign (kernel.parameter_bytes, 0);
  if (kernel.parameters.size () != launch.arguments.size ())
    return false;
  for (size_t i = 0; i < kernel.parameters.size (); i++)
    {
      const PtxParameter &to = kernel.parameters[i];
      const FakeCudaArgument &from = launch.arguments[i];
      const float single = (float)from.real;
      const uint8_t *bytes = from.bytes.data ();

      if (to.type.bytes == 0 && to.bytes != from.bytes.size ())
        return false;
      if (to.type.bytes > 0 && to.type.kind == Kind::FLOAT)
        bytes = to.bytes == 4 ? (const uint8_t *)&single : (const uint8_t *)&from.real;
      else if (to.type.bytes > 0)
        bytes = (const uint8_t *)&from.whole;
      for (size_t n = 0; n < to.bytes; n++)
        parameters[to.at + n] = bytes[n];
    }
  return true;
}

uint8_t *
shared_of (const FakeCudaLaunch &launch)
{
  return (uint8_t *)fake_cuda_dynamic_shared () + (launch.shared + 15) / 16 * 16;
}

/* Runs a kernel's thread. Its strings must be freed before the thread ends, since the stack is
 * never unwound. */
bool
run (const PtxKernel &kernel)
{
  const FakeCudaLaunch &launch = launch_now ();
  std::string why = kernel.missing.empty () ? "" : "has what is not known: " + kernel.missing;

  if (is_new_block && !pack (kernel, launch))
    why = "is given other arguments than its PTX takes";
  for (size_t i = 0; is_new_block && i < kernel.shared_bytes; i++)
    shared_of (launch)[i] = 0xff;
  is_new_block = false;
  if (why.empty () && ptx_run (kernel, parameters.data (), shared_of (launch), why))
    return true;
  blame_kernel (why);
  return false;
}

}

void
ptx_begin_block ()
{
  is_new_block = true;
}

void
ptx_enter (const void *function)
{
  if (kernels.empty ())
    return;
  trace_threads (false);
  const auto [found, is_new] = entries.insert ({ function, nullptr });
  if (is_new)
    found->second = kernel_of (function);
  if (found->second == nullptr)
    {
      trace_threads (true);
      return;
    }
  if (!run (*found->second))
    stop_kernel ();
  end_thread ();
}

}

bool
fake_cuda_runs_ptx ()
{
  return !fake::kernels.empty ();
}

guint
fake_cuda_run_ptx (const char *folder)
{
  GDir *files = g_dir_open (folder, 0, nullptr);
  const char *name;

  while (files != nullptr && (name = g_dir_read_name (files)) != nullptr)
    {
      g_autofree char *path = g_build_filename (folder, name, nullptr);
      g_autofree char *text = nullptr;

      if (g_str_has_suffix (name, ".ptx") && g_file_get_contents (path, &text, nullptr, nullptr))
        fake::ptx_read (text, fake::kernels);
    }
  if (files != nullptr)
    g_dir_close (files);
  fake::read_functions ();
  return (guint)fake::kernels.size ();
}
