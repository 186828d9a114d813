-- What stays in the log when its work is done (the options of retention), and what of it has to go.
-- NEEDS: log ready delayed inflight handover keyed replaced parked
--- @include partition writes positions
local retention = {}

-- The one test for it: never marked, always derived. What is done stands before the cursor and in none of the places
-- where an item stands; nor is it (an entry with `at`) the version of an item that waits.
function retention.done(position, at)
  if positions.after(position, partition.cursor) then return false end
  if partition.ordered and redis.call('HEXISTS', key.keyed, position) == 1 then return false end
  if redis.call('HEXISTS', key.inflight, position) == 1 or redis.call('HEXISTS', key.handover, position) == 1 then
    return false
  end
  if redis.call('ZSCORE', key.ready, position) or redis.call('ZSCORE', key.delayed, position) then return false end
  return at == '' or (redis.call('HGET', key.replaced, at) ~= position and redis.call('HGET', key.parked, at) ~= position)
end

-- An entry that is kept goes: by itself, by its owner's wish, or with all of them.
function retention.lose(log_id, bytes)
  partition.kept, partition.kept_bytes = partition.kept - 1, partition.kept_bytes - bytes
  if positions.after(log_id, partition.lost) then partition.lost = log_id end
  writes.add('XDEL', key.log, log_id)
end

-- An entry whose work is done. What `trim` has passed while it waited is older than all that may be kept.
function retention.keep(log_id, bytes)
  partition.kept, partition.kept_bytes = partition.kept + 1, partition.kept_bytes + bytes
  if not (partition.keeps and positions.after(log_id, partition.trim)) then retention.lose(log_id, bytes) end
end

local function over(most, count)
  return most > 0 and count > most
end

-- A configuration that keeps nothing any more is out of every window.
function retention.over()
  return partition.kept > 0 and (not partition.keeps or over(partition.keep_items, partition.kept)
    or over(partition.keep_bytes, partition.kept_bytes))
end
