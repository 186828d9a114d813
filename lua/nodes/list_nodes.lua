#!lua flags=no-writes
-- List `count` nodes in order of creation: those after a node, or from number `index` on, or with `backwards` the last ones before a
-- node, or of all. Returns the number of the first, how many nodes there are, and the names.
-- ARGV: after before backwards index count
-- RETURNS: ok(first total names) item-not-found
local function rank(name)
  return redis.call('ZRANK', key.all_nodes, name)
end

local all, count, first, beyond = redis.call('ZCARD', key.all_nodes), tonumber(arg.count), nil, nil
if arg.backwards == '1' then
  beyond = arg.before == '' and all or rank(arg.before)
  first = beyond and math.max(0, beyond - count)
else
  first = arg.after == '' and tonumber(arg.index) or rank(arg.after)
  if first and arg.after ~= '' then first = first + 1 end
  beyond = first and first + count
end
if not first then return {'item-not-found'} end
-- ZRANGE with an end of -1 would return all.
return {'ok', first, all, beyond > first and redis.call('ZRANGE', key.all_nodes, first, beyond - 1) or {}}
