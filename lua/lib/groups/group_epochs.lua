-- The epochs of groups (E27): group -> `epoch kept`. While a member owns the partition, kept is 0. After its connection was lost, kept is
-- when its lease would have ended (EX11). A group without a record has epoch 0, so any epoch is accepted (EX15).
local group_epochs = {}

-- Returns the epoch that an attach must exceed; nil for none.
function group_epochs.get(group)
  local line = redis.call('HGET', key.group_epochs, group)
  if not line then return nil end
  local epoch, kept = string.match(line, '^(%d+) (%d+)$')
  local who = partition_owner.get()
  if (who and who.group == group) or tonumber(kept) > call.partition_now then return epoch end
  return nil
end

-- Returns the epoch that an attach of `group` gets when it requests one, none (empty) or the next (`+`); nil when it is refused (E28,
-- EX13, EX14).
function group_epochs.grant(group, asked)
  local who, recorded = partition_owner.get(), group_epochs.get(group)
  if who and (who.group ~= group or asked == '') then return nil end
  if asked == '' or asked == '+' then return int64.following(recorded or '0') end
  if recorded and not int64.after(asked, recorded) then return nil end
  return asked
end

function group_epochs.room(group)
  return group_room.has(key.group_epochs, group, group_epochs.get)
end

function group_epochs.put(group, epoch, kept)
  redis.call('HSET', key.group_epochs, group, string.format('%s %d', epoch, kept))
end

function group_epochs.reset(group)
  redis.call('HDEL', key.group_epochs, group)
end
