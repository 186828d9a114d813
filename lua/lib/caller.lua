-- Who runs the script: a frontend by its name; the empty name is one that can send nothing, and `-` one that knows of no frontend
-- that lives.
-- CALL: sends = arg.frontend ~= '' and arg.frontend ~= '-', alone = arg.frontend == '-'
local caller = {}
