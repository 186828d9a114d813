-- Items that were placed in this partition when the node had fewer partitions: now their ids belong to another one. `former` in `meta` is
-- the last position that such an item may have. A repeat of such an item must find it here.
local former_partition = {}

-- Entries appended since `tail` replace items that were found here, and must be found here as well.
function former_partition.stay(tail)
  if call.partition_tail ~= tail then redis.call('HSET', key.meta, 'former', call.partition_tail) end
end

-- Returns 1 when no such item is left here, nor the remembered name of one; else 0, also when something was found and appended since
-- `tail`.
function former_partition.over(tail)
  if call.partition_tail ~= tail then return 0 end
  local last = redis.call('HGET', key.meta, 'former')
  if not last then return 1 end
  local first = redis.call('XRANGE', key.log, '-', '+', 'COUNT', 1)[1]
  if first and not positions.after(first[1], last) then return 0 end
  local window = math.max(tonumber(arg.dedupe_ms), tonumber(arg.once_ms))
  return positions.split(last) + window < call.partition_now and 1 or 0
end
