#!lua
-- Count the partitions of a node to the quota of a bare JID or a domain: all nodes in `created_nodes` share it. Rows are numbers by the
-- nodes' records; they are taken where none is counted, or where the count is a minute old, since a change under way may be counted before
-- it is in the record. Without rows, `measure` asks for them where a node is not counted, or there is no room.
-- ARGV: now node count most | node count
-- RETURNS: ok measure too-many(count)
local COMING_MS = 60000
local now, counted, total, unknown = clock.now(), {}, 0, false

local function read(node)
  local count, at = string.match(redis.call('HGET', key.created_partitions, node) or '', '^(%d+) (%d+)$')
  return tonumber(count), tonumber(at)
end

local function write(node, count)
  redis.call('HSET', key.created_partitions, node, string.format('%d %.0f', count, now))
end

for _, row in ipairs(rows) do
  local _, at = read(row.node)
  if not at or now - at > COMING_MS then write(row.node, tonumber(row.count)) end
end
for _, node in ipairs(redis.call('ZRANGE', key.created_nodes, 0, -1)) do
  local count = node == arg.node and 0 or read(node)
  counted[node], unknown, total = true, unknown or not count, total + (count or 0)
end
for _, node in ipairs(redis.call('HKEYS', key.created_partitions)) do
  if not counted[node] then redis.call('HDEL', key.created_partitions, node) end
end
local over = total + tonumber(arg.count) > tonumber(arg.most)
if (unknown or over) and #rows == 0 then return {'measure'} end
if over then return {'too-many', total} end
-- Who creates a node that exists asks with another number.
write(arg.node, math.max(tonumber(arg.count), read(arg.node) or 0))
return {'ok'}
