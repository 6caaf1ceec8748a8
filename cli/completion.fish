# fish completion for fsdplan, which says itself what a word can become.
function __fsdplan
    set -l words (commandline -opc) # those before the cursor, the program first
    set -l cur (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] "$cur" 2>/dev/null)
        if test "$line" = \t"files"
            set -l value (string replace -r '^.*=' '' -- $cur)
            set -l kept (string match -r '^.*=' -- $cur)
            for file in (__fish_complete_path "$value")
                echo "$kept$file"
            end
        else
            echo $line
        end
    end
end
complete -c fsdplan -f -a '(__fsdplan)'
