-- Decides which entries of finished items stay in the log (the options of retention), and which have to go.
local retention = {}

local function keep_out(done, places, command, name)
  if redis.call('EXISTS', name) == 0 then return end
  local found = redis.call(command, name, unpack(places))
  for i = 1, #places do done[i] = done[i] and not found[i] end
end

-- Whether each entry belongs to a finished item. This is derived, never stored: such an entry is before the cursor and in no index of
-- items, and it is not the current version (an entry with `ats`) of another item. Asks for several entries at once, since each index is
-- asked for all of them.
function retention.find_finished(places, ats)
  local done = {}
  for i, position in ipairs(places) do
    done[i] = not positions.after(position, call.partition_cursor)
    if done[i] and ats[i] ~= '' then
      done[i] = redis.call('HGET', key.replaced, ats[i]) ~= position and redis.call('HGET', key.successors, ats[i]) ~= position
    end
  end
  keep_out(done, places, 'HMGET', key.inflight)
  keep_out(done, places, 'HMGET', key.outbox_items)
  keep_out(done, places, 'ZMSCORE', key.ready)
  keep_out(done, places, 'ZMSCORE', key.delayed)
  if call.partition_before.selects then
    local members = {}
    for i, position in ipairs(places) do members[i] = skipped_items.member('', position) end
    keep_out(done, members, 'ZMSCORE', key.skipped)
  end
  if call.partition_before.hinted then
    local members = {}
    for i, position in ipairs(places) do members[i] = positions.pad(position) end
    keep_out(done, members, 'ZMSCORE', key.by_priority)
  end
  if call.partition_before.dependents then keep_out(done, places, 'HMGET', key.dependents) end
  if call.partition_options.ordered or call.partition_before.keyed then keep_out(done, places, 'HMGET', key.group_of) end
  return done
end

-- Removes a kept entry: trimmed, removed by an owner, or purged.
function retention.lose(log_id, bytes)
  log_entries.forget_new()
  partition.count_kept(-1, -bytes)
  if positions.after(log_id, call.partition_lost) then partition.note_lost(log_id) end
  write_buffer.add('XDEL', key.log, log_id)
end

-- Keeps the entry of a finished item. An entry that `trim` has passed while it waited is older than all that may be kept.
function retention.keep(log_id, bytes)
  partition.count_kept(1, bytes)
  if not (call.partition_options.keeps and positions.after(log_id, call.partition_trim)) then retention.lose(log_id, bytes) end
end

local function over(most, count)
  return most > 0 and count > most
end

-- Whether entries must go. With options that keep nothing, all must.
function retention.over()
  return call.partition_kept > 0 and (not call.partition_options.keeps or over(call.partition_options.keep_items, call.partition_kept)
    or over(call.partition_options.keep_bytes, call.partition_kept_bytes))
end
