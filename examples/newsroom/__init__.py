"""A newsroom: editors publish stories, and each reader gets one letter for each topic of an issue.

Stories are entities. An issue publishes several stories in one transaction, so its events are one atom. A workflow
collects the titles of the atom by topic. A second workflow asks the subscriptions, through a portal, for the readers
of the topic.
"""

from penstock import App

from .letters import letters
from .stories import Story, publish_issue
from .subscriptions import readers

app = App("newsroom", Story, publish_issue, readers, letters)
