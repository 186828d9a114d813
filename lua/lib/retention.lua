-- What stays in the log when its work is done (the options of retention), and what of it has to go.
-- NEEDS: log ready delayed inflight handover keyed replaced parked passed ranked
-- LAZY: where the log is kept
--- @include partition writes positions passed
local retention = {}

local function keep_out(done, places, command, name)
  if redis.call('EXISTS', name) == 0 then return end
  local found = redis.call(command, name, unpack(places))
  for i = 1, #places do done[i] = done[i] and not found[i] end
end

-- The one test for it: never marked, always derived. What is done stands before the cursor and in none of the places
-- where an item stands; nor is it (an entry with `ats` of its own) the version of an item that waits. For some entries at
-- once, since each question is asked of all places.
function retention.done(places, ats)
  local done = {}
  for i, position in ipairs(places) do
    done[i] = not positions.after(position, partition.cursor)
    if done[i] and ats[i] ~= '' then
      done[i] = redis.call('HGET', key.replaced, ats[i]) ~= position and redis.call('HGET', key.parked, ats[i]) ~= position
    end
  end
  keep_out(done, places, 'HMGET', key.inflight)
  keep_out(done, places, 'HMGET', key.handover)
  keep_out(done, places, 'ZMSCORE', key.ready)
  keep_out(done, places, 'ZMSCORE', key.delayed)
  if partition.selects then
    local members = {}
    for i, position in ipairs(places) do members[i] = passed.member('', position) end
    keep_out(done, members, 'ZMSCORE', key.passed)
  end
  if partition.hinted then
    local members = {}
    for i, position in ipairs(places) do members[i] = positions.padded(position) end
    keep_out(done, members, 'ZMSCORE', key.ranked)
  end
  if partition.ordered then keep_out(done, places, 'HMGET', key.keyed) end
  return done
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
