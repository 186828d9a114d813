-- Items that were put into this partition when the node had fewer partitions: their ids belong to another one now. `former` in `meta` is
-- the last position that such an item may have. A repeat of such an item has to find it here.
local former_partition = {}

-- What was appended here is an item, or a version of one, that was found here: it has to be found here as well.
function former_partition.stay(tail)
  if call.partition_tail ~= tail then redis.call('HSET', key.meta, 'former', call.partition_tail) end
end

-- Gives 1 when nothing here is looked for any more: neither an item nor the name of one that is done. Else 0, also while
-- something has been found and appended since `tail`.
function former_partition.over(tail)
  if call.partition_tail ~= tail then return 0 end
  local last = redis.call('HGET', key.meta, 'former')
  if not last then return 1 end
  local first = redis.call('XRANGE', key.log, '-', '+', 'COUNT', 1)[1]
  if first and not positions.after(first[1], last) then return 0 end
  local window = math.max(tonumber(arg.dedupe_ms), tonumber(arg.once_ms))
  return positions.split(last) + window < call.partition_now and 1 or 0
end
