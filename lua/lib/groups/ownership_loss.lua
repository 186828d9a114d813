-- Ends an owner's hold of its partition.
local ownership_loss = {}

-- Frees the partition if this subscriber owns it. Its group's epoch is reset, or `kept` until the lease would have ended: a lost
-- connection is not the owner's decision (EX11). With a `reason` the owner gets a notice (E28).
function ownership_loss.end_of(subid, kept, reason)
  local who = partition_owner.get()
  if not who or who.subid ~= subid then return end
  local epoch = group_epochs.get(who.group)
  local subscriber = reason and subscriptions.get(subid)
  -- Without one, somebody has removed it with redis-cli.
  if subscriber then notices.tell({'lost', subscriber.jid, who.group, epoch, call.partition_fence, reason}) end
  if kept then group_epochs.put(who.group, epoch, who.lease) else group_epochs.reset(who.group) end
  partition_owner.drop()
end
