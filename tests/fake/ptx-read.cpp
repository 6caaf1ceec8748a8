/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/ptx.hpp"

#include <cctype>
#include <cstdlib>
#include <cxxabi.h>

namespace fake
{

namespace
{

/* --- text --------------------------------------------------------------------------------- */

std::string
without_comments (const std::string &text)
{
  std::string out;

  for (size_t i = 0; i < text.size (); i++)
    {
      if (text[i] == '/' && i + 1 < text.size () && text[i + 1] == '/')
        while (i < text.size () && text[i] != '\n')
          i++;
      out += i < text.size () && text[i] != '\n' ? text[i] : ' ';
    }
  return out;
}

bool
is_of_name (char c)
{
  return isalnum ((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

std::string
trimmed (const std::string &text)
{
  const size_t from = text.find_first_not_of (" \t"), to = text.find_last_not_of (" \t");

  return from == std::string::npos ? "" : text.substr (from, to - from + 1);
}

/* The parts between separators that no bracket encloses. */
std::vector<std::string>
split (const std::string &text, char separator)
{
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;

  for (char c : text)
    {
      depth += c == '{' || c == '[' || c == '(';
      depth -= c == '}' || c == ']' || c == ')';
      if (c == separator && depth == 0)
        {
          parts.push_back (trimmed (part));
          part.clear ();
        }
      else
        part += c;
    }
  if (!trimmed (part).empty ())
    parts.push_back (trimmed (part));
  return parts;
}

bool
type_of (const std::string &word, PtxType &type)
{
  /* clang-format off */
  static const std::map<std::string, PtxType> types = {
    { "b8", { Kind::BITS, 1 } }, { "b16", { Kind::BITS, 2 } }, { "b32", { Kind::BITS, 4 } },
    { "b64", { Kind::BITS, 8 } }, { "u8", { Kind::UNSIGNED, 1 } }, { "u16", { Kind::UNSIGNED, 2 } },
    { "u32", { Kind::UNSIGNED, 4 } }, { "u64", { Kind::UNSIGNED, 8 } }, { "s8", { Kind::SIGNED, 1 } },
    { "s16", { Kind::SIGNED, 2 } }, { "s32", { Kind::SIGNED, 4 } }, { "s64", { Kind::SIGNED, 8 } },
    { "f16", { Kind::FLOAT, 2 } }, { "f32", { Kind::FLOAT, 4 } }, { "f64", { Kind::FLOAT, 8 } },
    { "pred", { Kind::PREDICATE, 1 } }, { "f16x2", { Kind::PAIR_F16, 4 } },
    { "bf16x2", { Kind::PAIR_BF16, 4 } }, { "e4m3x2", { Kind::PAIR_E4M3, 2 } },
    { "e5m2x2", { Kind::PAIR_E5M2, 2 } },
  };
  /* clang-format on */
  const auto found = types.find (word);

  if (found != types.end ())
    type = found->second;
  return found != types.end ();
}

uint32_t
flag_of (const std::string &word)
{
  /* clang-format off */
  static const std::map<std::string, uint32_t> flags = {
    { "wide", PTX_WIDE }, { "hi", PTX_HI }, { "ftz", PTX_FTZ }, { "rz", PTX_RZ },
    { "rm", PTX_RM }, { "rni", PTX_RNI }, { "sat", PTX_SAT },
    { "shared", PTX_SHARED }, { "param", PTX_OWN }, { "local", PTX_OWN }, { "warp", PTX_WARP },
    { "add", PTX_ADD }, { "max", PTX_MAX },
  };
  /* clang-format on */
  const auto found = flags.find (word);

  return found != flags.end () ? found->second : 0;
}

/* --- declarations ------------------------------------------------------------------------- */

/* A declared variable: ".shared .align 4 .b8 name[128]", ".param .u64 name". */
struct Variable
{
  std::string name;
  PtxType type;
  size_t alignment = 1, bytes = 0;
  bool is_array = false;
};

Variable
variable_of (const std::string &text)
{
  Variable self;
  std::vector<std::string> words = split (text, ' ');

  for (size_t i = 0; i < words.size (); i++)
    {
      if (words[i] == ".align" && i + 1 < words.size ())
        self.alignment = strtoul (words[++i].c_str (), nullptr, 10);
      else if (words[i][0] == '.')
        type_of (words[i].substr (1), self.type);
      else if (!words[i].empty ())
        self.name = words[i];
    }
  self.bytes = self.type.bytes;
  const size_t bracket = self.name.find ('[');
  if (bracket != std::string::npos)
    {
      self.bytes *= strtoul (self.name.c_str () + bracket + 1, nullptr, 10);
      self.name.resize (bracket);
      self.is_array = true;
    }
  if (self.alignment < self.type.bytes)
    self.alignment = self.type.bytes;
  return self;
}

size_t
place (const Variable &variable, size_t &end)
{
  const size_t at = (end + variable.alignment - 1) / variable.alignment * variable.alignment;

  end = at + variable.bytes;
  return at;
}

/* --- a kernel ----------------------------------------------------------------------------- */

struct Reader
{
  PtxKernel kernel;
  std::map<std::string, int> registers;
  std::map<std::string, size_t> labels;
  std::vector<std::string> targets; /* of branches, by instruction */

  int register_of (const std::string &name);
  PtxOperand operand_of (const std::string &text);
  void declare (const std::string &text);
  void add (const std::string &text);
  void resolve (PtxOperand &operand);
  void finish ();
};

int
Reader::register_of (const std::string &name)
{
  const auto [found, is_new] = registers.insert ({ name, kernel.n_registers });

  kernel.n_registers += is_new;
  return found->second;
}

const char *const specials[]
    = { "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
        "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "WARP_SZ" };

PtxOperand
Reader::operand_of (const std::string &text)
{
  PtxOperand self;

  if (text[0] == '!')
    {
      self = operand_of (trimmed (text.substr (1)));
      self.is_negated = true;
      return self;
    }
  if (text[0] == '{')
    {
      self.form = PtxOperand::VECTOR;
      for (const std::string &part : split (text.substr (1, text.size () - 2), ','))
        self.parts.push_back (operand_of (part));
      return self;
    }
  if (text[0] == '[')
    {
      std::string inside = text.substr (1, text.size () - 2);
      const size_t plus = inside.find ('+');

      if (plus != std::string::npos)
        self.number = (uint64_t)strtoll (inside.c_str () + plus + 1, nullptr, 10);
      inside = trimmed (inside.substr (0, plus));
      self.form = PtxOperand::MEMORY;
      if (inside[0] == '%')
        self.reg = register_of (inside);
      else
        self.symbol = inside;
      return self;
    }
  for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
    if (text == specials[i])
      {
        self.form = PtxOperand::SPECIAL;
        self.number = i;
        return self;
      }
  const size_t bar = text.find ('|');
  if (bar != std::string::npos)
    self.second = register_of (trimmed (text.substr (bar + 1)));
  if (text[0] == '%')
    {
      self.form = PtxOperand::REGISTER;
      self.reg = register_of (trimmed (text.substr (0, bar)));
    }
  else if (isdigit ((unsigned char)text[0]) || text[0] == '-')
    {
      const bool is_float = text.size () > 2 && text[0] == '0' && strchr ("fFdD", text[1]);

      self.form = PtxOperand::NUMBER;
      self.number = is_float         ? strtoull (text.c_str () + 2, nullptr, 16)
                    : text[0] == '-' ? (uint64_t)strtoll (text.c_str (), nullptr, 0)
                                     : strtoull (text.c_str (), nullptr, 0);
    }
  else
    {
      self.form = PtxOperand::SYMBOL;
      self.symbol = text;
    }
  return self;
}

void
Reader::declare (const std::string &text)
{
  if (text.compare (0, 5, ".reg ") == 0 || text.compare (0, 8, ".pragma ") == 0)
    return; /* registers are made when they are first used; pragmas only concern speed */
  const Variable variable = variable_of (text);
  if (text.compare (0, 8, ".shared ") == 0)
    kernel.shared_at[variable.name] = place (variable, kernel.shared_bytes);
  else if (text.compare (0, 7, ".local ") == 0)
    kernel.local_at[variable.name] = place (variable, kernel.local_bytes);
  else if (kernel.missing.empty () && text.compare (0, 7, ".param ") != 0)
    kernel.missing = text;
}

void
Reader::add (const std::string &text)
{
  PtxInstruction self;
  std::string rest = text, target;

  self.text = text;
  if (rest[0] == '@')
    {
      const size_t end = rest.find (' ');
      std::string guard = rest.substr (1, end - 1);

      self.is_guard_negated = guard[0] == '!';
      self.guard = register_of (guard.substr (self.is_guard_negated));
      rest = trimmed (rest.substr (end));
    }
  const size_t end = rest.find_first_of (" \t");
  for (const std::string &word : split (rest.substr (0, end), '.'))
    {
      PtxType type;

      if (type_of (word, type))
        {
          self.from = self.type;
          self.type = type;
        }
      else if (word == "v2" || word == "v4")
        self.vector = word[1] - '0';
      else
        self.words.push_back (word);
    }
  rest = end == std::string::npos ? "" : trimmed (rest.substr (end));
  if (self.words[0] == "bra")
    target = rest;
  else if (self.words[0] != "call")
    for (const std::string &operand : split (rest, ','))
      self.operands.push_back (operand_of (operand));
  self.code = ptx_code (self);
  for (const std::string &word : self.words)
    self.flags |= flag_of (word);
  if ((self.code < 0 || text.find (".cc.") != std::string::npos) && kernel.missing.empty ())
    kernel.missing = text; /* the interpreter has no carry flag */
  if (self.words.size () > 1)
    {
      const std::string &how = self.words[self.words[0] == "shfl" ? 2 : 1];

      self.how[0] = how[0];
      self.how[1] = how[1];
      if (how.size () == 3)
        self.flags |= PTX_UNORDERED;
    }
  targets.push_back (target);
  kernel.code.push_back (self);
}

void
Reader::resolve (PtxOperand &operand)
{
  const std::pair<const std::map<std::string, size_t> *, PtxSpace> spaces[]
      = { { &kernel.parameter_at, PtxSpace::PARAMETERS },
          { &kernel.shared_at, PtxSpace::SHARED },
          { &kernel.local_at, PtxSpace::LOCAL } };

  if (operand.symbol.empty ())
    return;
  operand.space = PtxSpace::UNKNOWN;
  for (const auto &[known, space] : spaces)
    if (const auto found = known->find (operand.symbol); found != known->end ())
      {
        operand.space = space;
        operand.number += found->second;
      }
}

void
Reader::finish ()
{
  for (size_t i = 0; i < kernel.code.size (); i++)
    {
      if (!targets[i].empty ())
        kernel.code[i].target = labels.at (targets[i]);
      for (PtxOperand &operand : kernel.code[i].operands)
        resolve (operand);
    }
}

/* --- a file ------------------------------------------------------------------------------- */

/* The bracket that closes the one at `open`. */
size_t
closing (const std::string &text, size_t open, char opens, char closes)
{
  int depth = 0;

  for (size_t i = open; i < text.size (); i++)
    {
      depth += text[i] == opens;
      depth -= text[i] == closes;
      if (depth == 0)
        return i;
    }
  return text.size ();
}

void
read_body (Reader &reader, const std::string &body)
{
  size_t at = 0;

  while (at < body.size ())
    {
      if (isspace ((unsigned char)body[at]) || body[at] == '{' || body[at] == '}')
        {
          at++;
          continue;
        }
      size_t end = at;
      while (end < body.size () && is_of_name (body[end]))
        end++;
      if (end < body.size () && body[end] == ':')
        {
          reader.labels[body.substr (at, end - at)] = reader.kernel.code.size ();
          at = end + 1;
          continue;
        }
      end = body.find (';', at);
      if (end == std::string::npos)
        return;
      const std::string statement = trimmed (body.substr (at, end - at));
      if (statement[0] == '.')
        reader.declare (statement);
      else
        reader.add (statement);
      at = end + 1;
    }
}

void
read_parameters (Reader &reader, const std::string &list)
{
  for (const std::string &text : split (list, ','))
    {
      const Variable variable = variable_of (text);
      PtxParameter parameter;

      parameter.at = place (variable, reader.kernel.parameter_bytes);
      parameter.bytes = variable.bytes;
      if (!variable.is_array)
        parameter.type = variable.type;
      reader.kernel.parameter_at[variable.name] = parameter.at;
      reader.kernel.parameters.push_back (parameter);
    }
}

}

std::string
ptx_demangle (const char *mangled)
{
  int status;
  char *written = abi::__cxa_demangle (
      std::string (mangled).substr (0, strcspn (mangled, ".")).c_str (), nullptr, nullptr, &status);
  std::string out = written != nullptr ? written : "";
  static const std::string unnamed = "(anonymous namespace)::";

  free (written);
  for (size_t at; (at = out.find (unnamed)) != std::string::npos;)
    out.erase (at, unnamed.size ());
  return out;
}

void
ptx_read (const std::string &source, std::map<std::string, PtxKernel> &kernels)
{
  const std::string text = without_comments (source);
  std::vector<std::string> shared; /* variables declared outside of kernels */
  size_t at = 0;

  while (at < text.size ())
    {
      const size_t statement = text.find (';', at), entry = text.find (".entry ", at),
                   function = text.find (".func ", at);

      if (entry < statement && entry < function)
        {
          const size_t open = text.find ('(', entry), close = closing (text, open, '(', ')');
          const size_t body = text.find ('{', close), end = closing (text, body, '{', '}');
          const std::string mangled = trimmed (text.substr (entry + 7, open - entry - 7));
          Reader reader;

          reader.kernel.name = ptx_demangle (mangled.c_str ());
          for (const std::string &variable : shared)
            reader.declare (variable);
          read_parameters (reader, text.substr (open + 1, close - open - 1));
          read_body (reader, text.substr (body, end - body));
          reader.finish ();
          kernels[reader.kernel.name] = reader.kernel;
          at = end + 1;
        }
      else if (function < statement && text.find ('{', function) < statement)
        at = closing (text, text.find ('{', function), '{', '}') + 1;
      else if (statement == std::string::npos)
        return;
      else
        {
          const size_t begin = text.find (".shared ", at);

          if (begin < statement)
            shared.push_back (text.substr (begin, statement - begin));
          at = statement + 1;
        }
    }
}

}
