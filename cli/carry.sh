#!/bin/sh
# carry.sh FOLDER CATALOGUE PROGRAM...: a folder that runs on a machine with nothing of ours on it: the
# programs, stripped, in the folders that they have here, the catalogue where they look for it, and in lib/ what they need beside the C
# library and NVIDIA's, which are the machine's own.
set -eu
folder=$1 catalogue=$2
shift 2

rm -rf "$folder"
mkdir -p "$folder/lib" "$folder/db"
cp "$catalogue" "$folder/db/"

needed () { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'; }

# library NAME FILE: where FILE, or what it needs, finds it on this machine
library () { ldd "$2" | awk -v name="$1" '$1 == name && $2 == "=>" && $3 ~ "/" { print $3; exit }'; }

# carry FILE: the libraries it needs, and those that they need
carry ()
{
  for name in $(needed "$1"); do
    case $name in
    ld-linux* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.*) continue ;;
    libcuda.so.* | libcublas*.so.* | libcudnn*.so.* | libnccl.so.* | libnvrtc*.so.*) continue ;;
    esac
    test ! -e "$folder/lib/$name" || continue
    path=$(library "$name" "$1")
    test -n "$path" || { echo "carry.sh: $1 needs $name, which is not on this machine" >&2; exit 1; }
    cp -L "$path" "$folder/lib/$name"
    carry "$path"
  done
}

for program in "$@"; do
  mkdir -p "$folder/$(dirname "$program")"
  cp "$program" "$folder/$program"
  strip "$folder/$program"
  carry "$program"
done
newest=$(find "$folder" -type f ! -path "*/db/*" -exec readelf -V {} + | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
echo "$folder: $(du -sm "$folder" | cut -f 1) MiB, for machines with glibc ${newest#GLIBC_} or later"
